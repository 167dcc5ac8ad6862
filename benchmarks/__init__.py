"""Speed, accuracy and memory of elman. The commands are in README.md of this folder."""
