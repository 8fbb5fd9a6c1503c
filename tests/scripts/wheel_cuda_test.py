"""scripts/wheel.py: the wheel of a build with CUDA has its own version, and lists the NVIDIA packages that it needs."""
import email
import importlib.util
import os
import pathlib

spec = importlib.util.spec_from_file_location("wheel", pathlib.Path(os.environ["INGOT_SOURCE"]) / "scripts" / "wheel.py")
wheel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wheel)

METADATA = """Metadata-Version: 2.2
Name: ingot
Version: 0.1.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Description-Content-Type: text/markdown

# ingot

Version: what the text says stays.
"""


def test_cuda_is_seen_in_what_the_program_needs():
    assert wheel.cuda_version(["libfmt.so.9", "libcublasLt.so.13", "libc.so.6"]) == 13
    assert wheel.cuda_version(["libfmt.so.9", "libc.so.6", "libcublasLt.so"]) is None


def test_the_metadata_of_a_wheel_with_cuda():
    for version in wheel.CUDA:
        message = email.message_from_string(wheel.label_metadata(METADATA, version))
        assert message["Version"] == f"0.1.0+cu{version}" and message["Name"] == "ingot"
        needs = message.get_all("Requires-Dist")
        assert needs[0] == "numpy>=1.22" and len(needs) == 3 and all(name.startswith("nvidia-") for name in needs[1:])
        assert message.get_payload() == METADATA.split("\n\n", 1)[1]
