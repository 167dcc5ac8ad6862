"""What asv tracks over the history of the project."""
