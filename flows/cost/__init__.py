"""What a run costs before it is begun: assumptions, the shape of the model, the card, and the arithmetic."""
