"""A job of NVIDIA FLARE: four sites, whose models a server averages, without noise.

Its scripts are found in the folder that it is started in.
"""

from pathlib import Path

import numpy as np
import torch
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from nvflare_network import Network

DIGITS = Path("digits.npz").resolve()
network = Network()

if __name__ == "__main__":
    recipe = FedAvgRecipe(
        name="digits",
        model=network,
        min_clients=4,
        num_rounds=10,
        train_script="nvflare_client.py",
        train_args=str(DIGITS),
    )
    run = recipe.execute(SimEnv(num_clients=4, num_threads=4))
    (found,) = Path(run.get_result()).rglob("FL_global_model.pt")
    network.load_state_dict(torch.load(found, weights_only=False)["model"])
    digits = {name: torch.from_numpy(part) for name, part in np.load(DIGITS).items()}
    with torch.no_grad():
        right = network(digits["x_test"]).argmax(1) == digits["y_test"]
    print(f"accuracy {right.float().mean():.3f}")
