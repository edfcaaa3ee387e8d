"""The deployment files: options that exist, names and ports that fit together."""

import re
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from resurge.cli import main, run
from resurge.cli.settings import file_options

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = [document for document in yaml.safe_load_all((DEPLOY / "kubernetes" / "resurge.yaml").read_text()) if document]


def options() -> dict[str, object]:
    """The options of `resurge run`, by parameter name."""
    app = typer.Typer()
    app.command()(run.command)
    return {str(parameter.name): parameter for parameter in typer.main.get_command(app).params}


def manifest(kind: str) -> dict:
    """The one manifest of a kind."""
    (found,) = [document for document in MANIFESTS if document["kind"] == kind]
    return found


def test_job_file_has_only_options_that_there_are_and_a_target_that_is_there():
    """`resurge run --config deploy/job.toml` is understood."""
    found = file_options(DEPLOY / "job.toml", options())
    assert Path(found["target"]).is_file()
    assert found["metrics"] == 9464


def test_manifests_fit_together():
    """Names, namespace, image and ports are the same wherever they are written."""
    settings = dict(line.split() for line in manifest("ConfigMap")["data"]["spark-defaults.conf"].splitlines())
    deployment, service = manifest("Deployment"), manifest("Service")
    pod = deployment["spec"]["template"]
    (driver,) = pod["spec"]["containers"]
    assert {document["metadata"]["namespace"] for document in MANIFESTS} == {settings["spark.kubernetes.namespace"]}
    assert driver["image"] == settings["spark.kubernetes.container.image"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    assert settings["spark.driver.host"].startswith(f"{service['metadata']['name']}.{service['metadata']['namespace']}.")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert str(ports["driver"]) == settings["spark.driver.port"]
    assert str(ports["blocks"]) == settings["spark.driver.blockManager.port"]
    assert ports["metrics"] == driver["ports"][0]["containerPort"] == file_options(DEPLOY / "job.toml", options())["metrics"]
    assert pod["spec"]["serviceAccountName"] == manifest("ServiceAccount")["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in driver["volumeMounts"]} <= volumes


def test_environment_variables_are_those_of_options():
    """A variable that nobody reads would silently do nothing."""
    known = {f"RESURGE_{name.upper()}" for name in options()}
    (driver,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    asked = {variable["name"] for variable in driver["env"] if variable["name"].startswith("RESURGE_")}
    assert asked
    assert asked <= known


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*/submit.sh")), ids=lambda path: path.parent.name)
def test_scripts_are_sound(script):
    """They parse, and start what is there."""
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "submit.py" in script.read_text()
    assert (DEPLOY / "submit.py").is_file()


def test_commands_in_files_are_commands_that_there_are():
    """The unit, the image and the manifest run `resurge run --config FILE`."""
    main.register()
    texts = [(DEPLOY / "systemd" / "resurge@.service").read_text(), (DEPLOY / "container" / "Containerfile").read_text()]
    for text in texts:
        assert re.search(r'resurge"?,? "?run"?,? "?--config', text)
    image = texts[1]
    for source in re.findall(r"^COPY (.+) \S+$", image, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()), source


def test_readme_names_every_file():
    """What was tried, and what was not, is said of each."""
    said = (DEPLOY / "README.md").read_text()
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "README.md":
            assert f"({path.relative_to(DEPLOY)})" in said, path
