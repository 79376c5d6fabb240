"""A plugin of pytest in whose processes the package ``structattn.fast`` cannot be imported."""

import sys


class _Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("structattn.fast"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Refusing())
