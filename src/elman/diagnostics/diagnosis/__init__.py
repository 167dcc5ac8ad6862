"""The diagnosis: predicted growth of gradients, its verification, its causes, and what to change."""
