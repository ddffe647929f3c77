"""Apps of clients."""


class ClientApp:
    _call = None

    def __init__(self, client_fn=None):
        self._functions = {}

    def __call__(self, message, context):
        kind = message.metadata.message_type
        if kind not in self._functions:
            raise ValueError(f"No {kind} function registered")
        return self._functions[kind](message, context)

    def train(self):
        return lambda function: self._functions.setdefault("train", function)

    def evaluate(self):
        return lambda function: self._functions.setdefault("evaluate", function)
