"""What is hidden in texts and documents, and what is not."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from trainer.debug.redaction import Redactor

VALUE = 'p4ss"w\\ord/é+1'


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        f"prefix{VALUE}suffix",
        json.dumps({"a": VALUE}),
        repr({"a": VALUE}),
        f"https://host/?q={quote(VALUE, safe='')}",
        base64.b64encode(VALUE.encode()).decode(),
    ],
    ids=["alone", "within a word", "JSON", "repr", "URL", "base64"],
)
def test_a_known_value_is_hidden_however_it_is_written(written: str) -> None:
    hidden = Redactor({"API_KEY": VALUE}).text(f"a line with {written} in it")
    assert "[hidden: API_KEY]" in hidden
    for part in ("p4ss", quote(VALUE, safe=""), base64.b64encode(VALUE.encode()).decode()):
        assert part not in hidden


def test_each_line_of_a_known_value_is_hidden_and_words_that_contain_a_short_one_are_not() -> None:
    redactor = Redactor({"CERT": "first line\nsecond line", "PIN": "test"})
    assert redactor.text("x second line y") == "x [hidden: CERT] y"
    assert redactor.text("the latest test") == "the latest [hidden: PIN]"


TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ij.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1234567890abcdef\nq2xh1234567890ABCDEF==\n-----END "
PEM += "RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("key AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("AWS_SESSION_TOKEN=FwoGZXIvYXdzEBYaD", "FwoGZXIvYXdzEBYaD"),
        ("GET /api Authorization: Bearer abc.def-ghi_jkl.mno", "abc.def"),
        ("{'Authorization': 'Basic dXNlcjpwYXNzd29yZA=='}", "dXNlcjpw"),
        ("sent bearer 0123456789abcdef0123", "0123456789abcdef"),
        (f"token of the account: {TOKEN}", "eyJpc3Mi"),
        ("git clone https://user:hunter2@example.com/x.git", "hunter2"),
        ("s3://bucket/x?X-Amz-Signature=0a1b2c3d&y=1", "0a1b2c3d"),
        ("https://hooks.slack.com/services/T0000/B0000/XXXX1234", "XXXX1234"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7"),
        ("hf_abcdefghijklmnopqrstuvwxyz01234567", "hf_abc"),
        ("glpat-abcdefghij0123456789", "glpat-abc"),
        ("glrt-t1_abcdefghij01234567", "glrt-t1"),
        ("gldt-abcdefghij0123456789", "gldt-abc"),
        ("glptt-0123456789abcdef0123456789abcdef01234567", "glptt-01"),
        ("GOCSPX-abcdefghij0123456789abcdefgh", "GOCSPX-abc"),
        ("1//0abcdefghij0123456789-x", "1//0abc"),
        ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "AIzaSyA"),
        ("ya29.a0AfH6SMBx0123456789abcdef", "ya29.a0"),
        ("sk-proj-abcdefghij0123456789", "sk-proj-abc"),
        ("sk-ant-api03-abcdefghij0123456789", "sk-ant-api"),
        ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm_abc"),
        ("xapp-1-A012-345-abcdef", "xapp-1"),
        ("pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3ODlhYmNkZWY", "pypi-AgE"),
        ("xoxe.xoxp-1-abcdefghij", "xoxp-1-abc"),
        ("github_pat_11ABCDEFG0abcdefghijklmnop", "github_pat"),
        ("dapi0123456789abcdef0123456789abcdef", "dapi0123"),
        ("BlobEndpoint=https://x;SharedAccessSignature=sv=2022-11-02&sig=abc%2Fdef0123456789", "abc%2Fdef"),
        ("AccountName=x;AccountKey=abcdefghij0123456789ABCDEF==;EndpointSuffix=y", "abcdefghij0123"),
        ("https://x.blob.core.windows.net/c?sv=2022&sp=r&sig=abcdef0123456789%3D", "abcdef0123"),
        ('{"auths": {"ghcr.io": {"auth": "bWU6aHVudGVyMg=="}}}', "bWU6aHVudGVyMg"),
        ("client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo=", "LS0tLS1CRUdJTi"),
        ("--password hunter2 --steps 5", "hunter2"),
        ("--api-key=hunter2", "hunter2"),
        ("db_password: hunter2", "hunter2"),
        ("password: correct", "correct"),
        ('{"client_secret": "correcthorse"}', "correcthorse"),
        (f"before\n{PEM}\nafter", "MIIEpAIB"),
        (f"cut off\n{PEM[:100]}", "MIIEpAIB"),
        (PEM[32:], "q2xh1234"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret in text
    hidden = Redactor().text(text)
    assert secret not in hidden
    assert "[hidden" in hidden


@pytest.mark.parametrize(
    "text",
    [
        "secrets.API_KEY: the variable is not set in this task, or is empty",
        "trainer: warning: env.API_TOKEN: looks like a secret, and stands in manifests and result.json",
        "secrets.API_KEY.file: '/home/me/key': cannot be read: No such file or directory",
        "worker:1 has another secret than its chief",
        "num_tokens=512 max_tokens: 77 tokenizer=bert tokens: 5",
        "TRAINER_SECRET_FILE=/run/trainer/secret",
        "step 40/400 loss=0.5 accuracy=0.9",
        "https://example.com/path?step=5#part",
        "token=5 secret=true password=none",
        "model.py:41: ValueError: could not convert string to float",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert Redactor().text(text) == text


SPEC = {
    "name": "j",
    "env": {"MODE": "k3y0fmine77", "TF_CPP_MIN_LOG_LEVEL": "2", "EPOCHS": "5", "PIN": 1234567, "PLAIN": "word"},
    "tasks": {"worker": {"replicas": 2, "env": {"DB_PASSWORD": "hunter2hunter2"}}},
    "secrets": {"API_KEY": {"secret": "of-the-cluster", "key": "api"}},
    "program": ["python", "train.py", "--token", "t0k3nt0k3n", "--db-password=other-value", "--steps", "5"],
    "settings": {"access_key": "settings-value", "units": 5},
    "notify": {"webhook": "https://example.com/hooks/abcdef"},
}


def test_a_document_keeps_names_and_hides_values() -> None:
    redactor = Redactor()
    assert redactor.document(SPEC) == {
        "name": "j",
        "env": {
            "MODE": "[hidden: MODE]",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "EPOCHS": "5",
            "PIN": 1234567,
            "PLAIN": "[hidden: PLAIN]",
        },
        "tasks": {"worker": {"replicas": 2, "env": {"DB_PASSWORD": "[hidden: DB_PASSWORD]"}}},
        "secrets": {"API_KEY": {"secret": "of-the-cluster", "key": "api"}},
        "program": [
            *("python", "train.py", "--token", "[hidden: token]", "--db-password=[hidden: db-password]"),
            *("--steps", "5"),
        ],
        "settings": {"access_key": "[hidden: access_key]", "units": 5},
        "notify": {"webhook": "[hidden: webhook]"},
    }


@pytest.mark.parametrize("value", ["k3y0fmine77", "hunter2hunter2", "t0k3nt0k3n", "other-value", "settings-value"])
def test_what_a_document_hides_is_known_in_later_texts(value: str) -> None:
    redactor = Redactor()
    redactor.document(SPEC)
    assert value not in redactor.text(f"the program printed {value}!")


def test_the_password_of_a_url_is_hidden_alone_too() -> None:
    redactor = Redactor({"HTTPS_PROXY": "http://me:correcthorse@proxy:3128"})
    redactor.document({"env": {"MLFLOW_TRACKING_URI": "https://me:batterystaple@mlflow"}})
    assert redactor.text("login with correcthorse or batterystaple") == (
        "login with [hidden: HTTPS_PROXY] or [hidden: MLFLOW_TRACKING_URI]"
    )


def test_what_looks_like_a_secret_in_a_document_is_known_in_later_texts() -> None:
    redactor = Redactor()
    hidden = redactor.document({"command": ["curl", "-H", "X-Api-Key: k3y0fmine77", "password=correct"]})
    assert hidden == {"command": ["curl", "-H", "X-Api-Key: [hidden: secret]", "password=[hidden]"]}
    assert redactor.text("k3y0fmine77 is correct") == "[hidden: secret] is correct"


def test_annotations_are_hidden_unless_kubernetes_writes_them_or_they_are_harmless() -> None:
    found = {"batch.kubernetes.io/job-completion-index": "0", "x.k8s.io/place": "a-b", "note": "k3y0fmine77"}
    hidden = Redactor().document({"annotations": {**found, "prometheus.io/scrape": "true"}})
    assert hidden == {"annotations": {**found, "note": "[hidden: note]", "prometheus.io/scrape": "true"}}


def test_words_are_no_secrets_because_a_variable_has_them() -> None:
    redactor = Redactor()
    redactor.document({"env": {"MODE": "training", "PLACE": "/data/train1"}})
    assert redactor.text("trainer/training/main.py reads /data/train1") == "trainer/training/main.py reads /data/train1"


def test_variables_of_containers_and_pods_are_hidden_as_those_of_a_spec() -> None:
    job = json.dumps({"env": {"WANDB": "a1b2c3d4e5"}})
    hidden = Redactor().document(
        {
            "Config": {"Env": ["OTHER=x1y2z3w4v5", f"TRAINER_JOB={job}", "TRAINER_SECRET=abc"]},
            "containers": [{"name": "task", "env": [{"name": "OTHER", "value": "x1y2z3w4v5"}, {"name": "TASK_INDEX"}]}],
            "volumes": [{"name": "s", "secret": {"secretName": "j-report-secret"}}],
        }
    )
    assert hidden == {
        "Config": {
            "Env": [
                "OTHER=[hidden: OTHER]",
                'TRAINER_JOB={"env": {"WANDB": "[hidden: WANDB]"}}',
                "TRAINER_SECRET=[hidden: TRAINER_SECRET]",
            ]
        },
        "containers": [
            {"name": "task", "env": [{"name": "OTHER", "value": "[hidden: OTHER]"}, {"name": "TASK_INDEX"}]}
        ],
        "volumes": [{"name": "s", "secret": {"secretName": "j-report-secret"}}],
    }


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 300_000, "a." * 150_000, "token" * 60_000, "https://" * 40_000, "-----BEGIN PRIVATE KEY-----" * 10_000),
        *("eyJ" * 100_000, "?token" * 50_000, "--" * 150_000, "bearer " * 40_000),
    ],
    ids=lambda text: text[:8],
)
def test_no_text_takes_long(text: str) -> None:
    redactor = Redactor({"KEY": VALUE})
    begun = time.process_time()
    redactor.text(text)
    assert time.process_time() - begun < 10, "a square of its length takes hours"
