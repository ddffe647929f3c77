#!/usr/bin/env bash
# gdpnum's "Opacus-compatible" accountant answers while a run lasts, and cannot be saved with it: the charges are lost at a restart.
#
# Versions: gdpnum 0.1.2 (CTDAccountant), opacus 1.6.0 (PrivacyEngine), torch 2.13.0, dp-accounting 0.6.0.
# Input:    three steps of DP-SGD of a linear model, with the engine's accountant replaced by gdpnum's;
#           then PrivacyEngine.save_checkpoint, and the accountant's other methods, each called as Opacus's own are.
# Expected: epsilon, and a checkpoint from which the accountant goes on, as with Opacus's RDPAccountant and PRVAccountant.
# Seen:     epsilon is told; state_dict (and so save_checkpoint) and get_advantage raise NameError, for names that the module never
#           imports. Loading a state that RDPAccountant's own code wrote by hand for it is refused as well: "mechanism" is compared as
#           a function, so only the very process that made the state could take it.
# Moral:    a ledger that lives in a training process is tried across a restart before it is relied on; charges that cannot be
#           stored are charges that are forgotten.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
pip() { "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip opacus==1.6.0 gdpnum==0.1.2 dp-accounting==0.6.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'P'
from importlib.metadata import version

import torch
from gdpnum import CTDAccountant
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant

torch.manual_seed(0)


def trained(accountant):
    engine = PrivacyEngine()
    engine.accountant = accountant
    model = torch.nn.Linear(3, 2)
    data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(2, (64,)))
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if number == 2:
            break
    return engine, model


def outcome(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "works"


print(*(f"{name} {version(name)}" for name in ("gdpnum", "opacus", "torch", "dp-accounting")), sep=", ")
seen = {}
for accountant in (RDPAccountant(), CTDAccountant()):
    name = type(accountant).__name__
    engine, model = trained(accountant)
    print(f"{name}: history {accountant.history}, epsilon {accountant.get_epsilon(delta=1e-5):.3f}")
    seen[name] = {
        "save_checkpoint": outcome(lambda: engine.save_checkpoint(path="run.pt", module=model)),
        "state_dict": outcome(accountant.state_dict),
        "load_state_dict": outcome(
            lambda: type(accountant)().load_state_dict(
                {"history": list(accountant.history), "mechanism": accountant.mechanism()}
            )
        ),
    }
    print("  ", seen[name])
print("   get_advantage", advantage := outcome(CTDAccountant.get_advantage.__get__(accountant)))
assert set(seen["RDPAccountant"].values()) == {"works"}
ours = seen["CTDAccountant"]
assert ours["save_checkpoint"].startswith("NameError") and ours["state_dict"].startswith("NameError"), "it is mended"
assert ours["load_state_dict"].startswith("ValueError") and advantage.startswith("NameError"), "it is mended"
P
