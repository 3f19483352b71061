"""A unit in a vehicle, where only numpy and onnxruntime are installed."""

ON_BOARD = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not on board")
BLOCKED = {"torch", "polars", "pyarrow", "scipy", "matplotlib", "jinja2", "safetensors", "onnx",
           "typer", "rich", "tomli_w", "pandas"}
sys.meta_path.insert(0, Refuse())
"""
"""First lines of a program that finds no other package."""
