"""Configuration of projects."""


def get_project_config(folder):
    raise FileNotFoundError(f"Cannot find pyproject.toml in {folder}")


def flatten_dict(config):
    return config
