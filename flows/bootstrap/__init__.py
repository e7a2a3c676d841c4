"""Rounds of self-teaching."""
