"""One module per method: its name, its options, and the function that answers it from the last results."""

from __future__ import annotations

from typing import Final

from graphguard_server.features import (
    cancel,
    clear_cache,
    code_action,
    code_lens,
    debug_information,
    did_change,
    did_change_configuration,
    did_change_watched_files,
    did_change_workspace_folders,
    did_close,
    did_open,
    did_save,
    explain,
    hover,
    initialize,
    initialized,
    restart,
    run,
    shutdown,
    trust,
)

MODULES: Final = (
    cancel,
    clear_cache,
    code_action,
    code_lens,
    debug_information,
    did_change,
    did_change_configuration,
    did_change_watched_files,
    did_change_workspace_folders,
    did_close,
    did_open,
    did_save,
    explain,
    hover,
    initialize,
    initialized,
    restart,
    run,
    shutdown,
    trust,
)
