"""No file needs, directly or through others, a file that needs it: not even for the types in its signatures."""

from graphlib import TopologicalSorter

import grimp


def test_no_circle_of_files():
    graph = grimp.build_graph("sparkrelay", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(TopologicalSorter(needs).static_order())  # raises CycleError, which names the circle
