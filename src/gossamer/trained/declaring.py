"""The reading of rows, as a model keeps it: the settings of the run's data set, without any file."""

from __future__ import annotations

from gossamer.data.settings import DatasetSettings


def declaration(settings: DatasetSettings) -> DatasetSettings:
    """The settings, without the places of files."""
    if settings.synthetic is not None:
        return settings
    return settings.model_copy(update={"path": None, "test_path": None})
