"""Push-sum: stochastic gradient push on directed graphs, which may change from step to step."""
