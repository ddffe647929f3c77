"""``gossamer report``."""

from __future__ import annotations

import argparse
import signal
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gossamer.cli.logs import door_for, page_of
from gossamer.cli.printing import say
from gossamer.errors import CallerError, failing_as


def report_command(options: argparse.Namespace) -> int:
    """Write the report, and say where it is."""
    from gossamer.files import held, make_own_folder, write_own
    from gossamer.report.model_card import CARD, model_card
    from gossamer.report.page import folders_in, write_figures, write_page, write_paper
    from gossamer.report.records import read_records
    from gossamer.report.serving import ShownFolders, served_here

    folder, page = options.out or options.dir[0], None
    options.dir = [found for given in options.dir for found in folders_in(given)]
    drawn = partial(page_of, options.dir, options.public, options.threshold)
    with door_for(options) as door:
        if door is not None:
            drawn()  # what cannot be shown is refused before anything is served
            say(f"the report, for you alone, until Ctrl-C: {door.address}")
            page_now = partial(page_of, public=options.public, threshold=options.threshold)
            with suppress(KeyboardInterrupt), served_here(ShownFolders(options.dir, page_now), door):
                signal.pause()
            say("the report is shown no more")
            return 0
    if options.card and len(options.dir) > 1:
        raise CallerError(f"--card: expected one run, found {len(options.dir)}; a card is of one model")
    # What has no model is refused before anything is written.
    card = None
    if options.card:
        (record,) = read_records(options.dir)
        card = model_card(replace(record, threshold=options.threshold), public=options.public)
    if options.out is not None:
        page = drawn()  # what cannot be shown is refused before a folder is made for it
        with failing_as(CallerError, f"{folder}: cannot make this folder (", "); choose another --out"):
            make_own_folder(folder)
    with held(folder):
        page = page or drawn()
        if card is not None:
            write_own(folder / CARD, card)
            print(folder / CARD)
        print(write_page(page, folder))
        if options.figures:
            print(write_figures(page, folder))
        if options.pdf:
            print(write_paper(page, folder))
    return 0
