"""From texts to translations and labels, on any engine. Nothing is imported here."""
