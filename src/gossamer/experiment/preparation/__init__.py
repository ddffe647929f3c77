"""What a run is made of before it starts: data, objective, plan, sides and secrets."""
