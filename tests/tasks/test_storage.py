"""Storage on a real S3 server on loopback: folders are uploaded, and every failure is one line without a secret."""

import pytest
from s3_loopback import BUCKET, KEY, SECRET, s3_endpoint  # noqa: F401  (a fixture)

from models.base.errors import UserError
from tasks.state.storage import Keys, health, make_bucket, signed_links, split_uri, upload_folder

pytestmark = pytest.mark.slow


def client_of(endpoint):
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


def refused(call):
    with pytest.raises(UserError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    assert KEY not in message and SECRET not in message
    return message


def test_every_file_of_the_folder_is_there_under_the_prefix_with_its_bytes(s3_endpoint, tmp_path):  # noqa: F811
    (tmp_path / "plots").mkdir()
    (tmp_path / "report.md").write_text("# Report")
    (tmp_path / "plots/reward.png").write_bytes(bytes(range(256)) * 50_000)  # 12.8 MB: sent in parts
    addresses = upload_folder(tmp_path, f"s3://{BUCKET}/runs/1/", s3_endpoint)
    assert addresses == [f"s3://{BUCKET}/runs/1/plots/reward.png", f"s3://{BUCKET}/runs/1/report.md"]
    for address, path in zip(addresses, ("plots/reward.png", "report.md"), strict=True):
        key = address.removeprefix(f"s3://{BUCKET}/")
        stored = client_of(s3_endpoint).get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert stored == (tmp_path / path).read_bytes()


def test_a_signed_link_is_read_without_keys_and_another_file_is_not(s3_endpoint, tmp_path):  # noqa: F811
    import requests

    (tmp_path / "data_docs").mkdir()
    (tmp_path / "description.md").write_text("## Promoted")
    (tmp_path / "data_docs/index.html").write_text("<h1>Docs</h1>")
    upload_folder(tmp_path, f"s3://{BUCKET}/reports/1", s3_endpoint)
    upload_folder(tmp_path, f"s3://{BUCKET}/reports/10", s3_endpoint)
    links = signed_links(f"s3://{BUCKET}/reports/1", 60, s3_endpoint)
    assert list(links) == ["data_docs/index.html", "description.md"]
    assert requests.get(links["description.md"], timeout=20).text == "## Promoted"
    assert requests.get(links["description.md"].partition("?")[0], timeout=20).status_code in (400, 403)
    other = links["description.md"].replace("description.md", "data_docs/index.html")
    assert requests.get(other, timeout=20).status_code == 403
    assert all(SECRET not in link for link in links.values())


def test_what_cannot_be_signed_is_said(s3_endpoint):  # noqa: F811
    assert refused(lambda: signed_links(f"s3://{BUCKET}/none", 60, s3_endpoint)).endswith("no files were found")
    assert "604,800 seconds" in refused(lambda: signed_links(f"s3://{BUCKET}/none", 604_801, s3_endpoint))
    assert refused(lambda: signed_links("s3://nowhere/x", 60, s3_endpoint)) == "s3://nowhere/x: no such bucket"


def test_a_healthy_bucket_is_left_as_it_was(s3_endpoint):  # noqa: F811
    assert health(f"s3://{BUCKET}/health", s3_endpoint) > 0
    assert client_of(s3_endpoint).list_objects_v2(Bucket=BUCKET, Prefix="health").get("KeyCount", 0) == 0


def test_a_bucket_that_is_not_there_is_said(s3_endpoint, tmp_path):  # noqa: F811
    (tmp_path / "a").touch()
    assert refused(lambda: health("s3://nowhere", s3_endpoint)) == "s3://nowhere: no such bucket"
    assert refused(lambda: upload_folder(tmp_path, "s3://nowhere", s3_endpoint)) == "s3://nowhere: no such bucket"


@pytest.mark.rotating(of=6)
def test_a_bucket_is_made_once_also_with_keys_that_the_environment_does_not_have(s3_endpoint, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    keys = Keys(KEY, SECRET)
    assert [make_bucket("s3://new/below", s3_endpoint, keys) for _ in range(2)] == [True, False]
    assert health("s3://new", s3_endpoint, keys) > 0
    assert refused(lambda: make_bucket("s3://other", s3_endpoint)).startswith("s3://other: ")
    assert SECRET not in repr(keys)


def test_wrong_credentials_are_said_and_not_shown(s3_endpoint, monkeypatch):  # noqa: F811
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-" + SECRET)
    assert refused(lambda: health(f"s3://{BUCKET}", s3_endpoint)).startswith(f"s3://{BUCKET}: ")


def test_no_credentials_are_said(s3_endpoint, monkeypatch, tmp_path):  # noqa: F811
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").touch()
    assert "no credentials" in refused(lambda: health(f"s3://{BUCKET}", s3_endpoint))
    assert "no credentials" in refused(lambda: upload_folder(tmp_path, f"s3://{BUCKET}", s3_endpoint))


@pytest.mark.rotating(of=6)
def test_a_server_that_is_away_is_tried_again_and_then_said(s3_endpoint, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tasks.state.storage.ATTEMPTS", 2)
    (tmp_path / "a").touch()
    away = "http://127.0.0.1:9"  # the port `discard`: nothing listens
    assert "cannot be reached" in refused(lambda: health(f"s3://{BUCKET}", away))
    assert "cannot be reached" in refused(lambda: upload_folder(tmp_path, f"s3://{BUCKET}", away))


def test_an_endpoint_that_is_no_address_is_refused(s3_endpoint):  # noqa: F811
    assert "endpoint" in refused(lambda: health(f"s3://{BUCKET}", "nonsense"))


def test_a_missing_folder_is_named(tmp_path):
    assert refused(lambda: upload_folder(tmp_path / "gone", "s3://b")) == f"{tmp_path / 'gone'}: no such folder"


@pytest.mark.parametrize("uri", ["bucket/prefix", "https://bucket/x", "s3://", "s3://b/x?version=1"])
def test_what_is_no_s3_address_is_refused(uri):
    assert "not an address" in refused(lambda: split_uri(uri))


def test_an_address_with_credentials_is_refused_and_not_repeated():
    assert "must not hold credentials" in refused(lambda: split_uri(f"s3://{KEY}:{SECRET}@bucket/x"))
