def draw(study, records, path):
    pass
