"""Records and messages."""

from types import SimpleNamespace


class Array:
    def __init__(self, values):
        self._values, self.dtype = values, str(values.dtype)

    def numpy(self):
        return self._values


class ArrayRecord(dict):
    pass


class ConfigRecord(dict):
    pass


class MetricRecord(dict):
    pass


class RecordDict(dict):
    def _of(self, kind):
        return {name: record for name, record in self.items() if isinstance(record, kind)}

    @property
    def array_records(self):
        return self._of(ArrayRecord)

    @property
    def config_records(self):
        return self._of(ConfigRecord)

    @property
    def metric_records(self):
        return self._of(MetricRecord)


class Context:
    def __init__(self, run_id, node_id, node_config, state, run_config):
        self.run_id, self.node_id, self.node_config = run_id, node_id, node_config
        self.state, self.run_config = state, run_config


class Message:
    def __init__(self, content, dst_node_id=None, message_type="", group_id="", reply_to=None):
        self.content, self.metadata = content, SimpleNamespace(message_type=message_type, dst_node_id=dst_node_id)

    def has_error(self):
        return False
