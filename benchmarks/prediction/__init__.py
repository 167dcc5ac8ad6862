"""Whether predictions of gradients are right: networks, predictors, scores and tables."""
