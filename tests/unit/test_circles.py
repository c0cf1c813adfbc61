"""No file needs, directly or through others, a file that needs it."""

from graphlib import TopologicalSorter

import grimp


def test_no_circle_of_files():
    graph = grimp.build_graph("sparkrelay", exclude_type_checking_imports=True, cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the circle
