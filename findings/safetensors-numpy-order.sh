#!/usr/bin/env bash
# safetensors 0.8.0 writes NumPy arrays that are not in C order with their numbers permuted, and says nothing.
#
# Versions: safetensors 0.8.0 and 0.7.0, numpy 2.4.4, scikit-learn 1.9.1 with scipy 1.17.1 (for an everyday array in Fortran order).
# Input:    load(save({"a": a})) for a in Fortran order, a transposed view, and a view of every other column; all of float64. The
#           coefficients that scikit-learn's LogisticRegression finds for iris are a view of that kind, with no sign of it.
# Expected: the same numbers at the same places, or an error (safetensors.torch refuses tensors that are not contiguous).
# Seen:     0.7.0 gives the same numbers. 0.8.0 writes the memory as it lies under the shape as it is read: same shape, same numbers,
#           other places; of the view even other numbers. Predictions of iris from the file are right for 0.33 in the place of 0.97.
# Moral:    np.ascontiguousarray before every save, whichever version.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
pip() { "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip numpy==2.4.4 scikit-learn==1.9.1 scipy==1.17.1
for version in 0.7.0 0.8.0; do
  pip "safetensors==$version"
  "$work/env/bin/python" - "$version" <<'P'
import sys

import numpy as np
from safetensors import __version__
from safetensors.numpy import load, save
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

x, y = load_iris(return_X_y=True)
fitted = LogisticRegression(max_iter=1000).fit(x, y)
square = np.arange(6.0).reshape(2, 3)
arrays = {"fortran": np.asfortranarray(square), "transposed": square.T, "view": square[:, ::2], "iris": fitted.coef_}
back = {name: load(save({name: array}))[name] for name, array in arrays.items()}
same = {name: bool(np.array_equal(back[name], array)) for name, array in arrays.items()}
scores = {
    "written": (x @ fitted.coef_.T + fitted.intercept_).argmax(1),
    "read": (x @ back["iris"].T + fitted.intercept_).argmax(1),
}
print("safetensors", __version__, "same numbers:", same)
print("  iris, C order:", fitted.coef_.flags.c_contiguous, {k: round(float((v == y).mean()), 3) for k, v in scores.items()})
assert all(same.values()) == (sys.argv[1] == "0.7.0") and not fitted.coef_.flags.c_contiguous
P
done
