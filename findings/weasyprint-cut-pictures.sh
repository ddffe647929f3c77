#!/usr/bin/env bash
# Importing WeasyPrint makes Pillow read pictures that are cut off as whole ones, everywhere in the process, and says nothing.
#
# Versions: weasyprint 70.0, pillow 13.0.0.
# Input:    a PNG of noise, 32 x 32, less its last 200 bytes; Image.open(...).load(), before and after "import weasyprint".
# Expected: the same both times: OSError. That a package which sets PDFs is imported says nothing of pictures that others read.
# Seen:     OSError before, and a whole array after, whose last rows are black. It sets PIL.ImageFile.LOAD_TRUNCATED_IMAGES.
# Moral:    put the flag back after the import. A data set that is read after a report was made is not checked otherwise.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check weasyprint==70.0 pillow==13.0.0 numpy==2.4.4
"$work/env/bin/python" - <<'P'
import io

import numpy as np
from PIL import Image, ImageFile

out = io.BytesIO()
Image.fromarray(np.random.default_rng(0).integers(1, 255, (32, 32), dtype=np.uint8)).save(out, "PNG")
cut = out.getvalue()[:-200]


def read():
    try:
        return np.asarray(Image.open(io.BytesIO(cut)))
    except OSError as error:
        return str(error)


before = read()
import weasyprint  # noqa: E402

after = read()
print("before:", before)
print("after weasyprint", weasyprint.__version__, ":", getattr(after, "shape", after), "last row", after[-1, :4])
assert isinstance(before, str) and after.shape == (32, 32) and not after[-1].any() and ImageFile.LOAD_TRUNCATED_IMAGES
P
