"""Prints the lowest versions that pyproject.toml declares for the core and the tests, as arguments of pip."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
# what matplotlib 3.8 reads its own files with; newer ones warn, and warnings fail tests
print("pyparsing==3.0.9")
for requirement in project["dependencies"] + project["optional-dependencies"]["test"]:
    print(requirement.replace(">=", "=="))
