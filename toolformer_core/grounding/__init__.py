"""GEAR: which tool fits a query, chosen with a small model and without training (`ground` puts it together)."""
