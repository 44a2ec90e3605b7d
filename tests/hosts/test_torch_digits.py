"""PyTorch's digits on several hosts; run only if it is named: `python3 noxfile.py -s soak -- tests/hosts`."""

from pathlib import Path

import pytest
from digits import train_alike

pytestmark = pytest.mark.timeout(600)


def test_digits_train_alike_on_several_hosts_and_on_one(lab, launch, tmp_path):
    train_alike(lab, launch, tmp_path, "torch", "digits.py")


@pytest.mark.parametrize("method", [["farandole://"], []])
def test_torch_distributed_works_over_hosts(lab, launch, method):
    script = Path(__file__).with_name("distributed.py")
    code, out, err = launch(lab.hosts(2), "-H", "h0:1,h1:1", "--no-prefix", script, *method).finish()
    assert code == 0, err
    assert out.splitlines() == ["[3.0, 3.0, 3.0] ['h0', 'h1']"] * 2
