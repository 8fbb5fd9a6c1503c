"""The examples in docstrings run, and every public name has a docstring."""
import doctest
import inspect

import ingot
import ingot.langchain
import ingot.model


def test_the_examples_in_docstrings():
    for module in (ingot, ingot.model, ingot.langchain):
        result = doctest.testmod(module)
        assert result.attempted > 0 and result.failed == 0


def test_every_name_has_a_docstring():
    things = [getattr(ingot, name) for name in ingot.__all__]
    things += [member for name, member in inspect.getmembers(ingot.Model) if not name.startswith("_")]
    bare = [thing for thing in things if not inspect.getdoc(thing)]
    assert bare == []
