"""Take credentials out of text that others will read: errors, telemetry, records, printed commands."""

import re

HIDDEN = "***"
NAMES = (
    "password",
    "passwd",
    "secret",
    "token",
    "signature",
    "credential",
    "access_key",
    "accesskeyid",
    "account_key",
    "api_key",
)
SHORT_NAMES = ("sig=", "sas=")
_USER = re.compile(r"(://)[^\s/?#\"'\\]*@")
_FIELD = re.compile(rf"((?:{'|'.join(NAMES)}|\bsig|\bsas)\s*=\s*)[^\s&;,\"'\\)}}]+", re.IGNORECASE)
_ITEM = re.compile(rf"((?:{'|'.join(NAMES)})'\s*:\s*')[^'\"\\]+", re.IGNORECASE)


def redacted(text: str) -> str:
    """The text without the user and password of URLs, and without the values of fields that are called like secrets.

    >>> redacted("cannot open ftp://me:secret@host/jobs?sig=abc&part=1")
    'cannot open ftp://***@host/jobs?sig=***&part=1'
    >>> redacted("host=db password=secret user=me")
    'host=db password=*** user=me'
    """
    text = _USER.sub(rf"\g<1>{HIDDEN}@", text)
    # Every event of the telemetry comes through here, and hardly any has such a name.
    lowered = text.lower()
    if not any(name in lowered for name in (*NAMES, *SHORT_NAMES)):
        return text
    return _ITEM.sub(rf"\g<1>{HIDDEN}", _FIELD.sub(rf"\g<1>{HIDDEN}", text))
