import sys
from pathlib import Path

# bench is not part of the package, and importlib mode adds no folders.
sys.path.insert(0, str(Path(__file__).parents[3]))
