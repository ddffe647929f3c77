"""Edge-cloud learning in stages with an adaptive clip (MAPA): `box` is the algorithm, on one page."""
