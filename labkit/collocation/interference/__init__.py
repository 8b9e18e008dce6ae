"""How much jobs slow each other down on one device: profiles of each alone, a model, and its score."""
