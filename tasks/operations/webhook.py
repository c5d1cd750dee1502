"""Webhook: a message goes to an HTTP address as JSON. The address is a secret and never logged.

Beside the data's way; nothing of Luigi.
"""

import logging
from collections.abc import Mapping

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

_TIMEOUT_SECONDS = 10
# A service that is down for less than half a minute is asked again; nobody needs to know of it.
_RETRY = {"total": 5, "backoff_factor": 1.0}
_PASSING = (429, 500, 502, 503, 504)

_logger = logging.getLogger(__name__)


def post(url: str, content: Mapping[str, object], *, retry: Mapping = _RETRY) -> bool:
    """Send the message to the webhook; whether it was accepted. What went wrong is logged, without the address.

    Args:
        url: http or https.
        content: plain JSON data.
        retry: how often, and the factor in seconds of the growing pauses between.
    """
    # It logs the address it asks again.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # A server must not make us wait for hours, nor send a message on to another.
    retries = Retry(
        **retry, status_forcelist=_PASSING, allowed_methods={"POST"}, respect_retry_after_header=False, redirect=False
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        try:
            answer = session.post(url, json=content, timeout=_TIMEOUT_SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            # Its text holds the address.
            _logger.warning("the webhook was not reached: %s", type(error).__name__)
            return False
    if not 200 <= answer.status_code < 300:
        _logger.warning("the webhook did not accept the message: HTTP status %d", answer.status_code)
        return False
    return True
