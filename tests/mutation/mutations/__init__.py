"""One mutation for each mechanism that a promise rests on, and the tests that must notice its loss.

A file a subject, each with a tuple `MUTATIONS`; docs/guarantees.md shows them by name of file.
"""

import importlib
import pkgutil

from tests.mutation.runner import Mutation


def _all() -> tuple[Mutation, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
    return tuple(mutation for name in names for mutation in importlib.import_module(name).MUTATIONS)


MUTATIONS = _all()
