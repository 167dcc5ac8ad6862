"""What the recurrent matrix alone says: eigenvalues, norms, pseudospectra."""
