"""What is in the composer for which chat, and the draft that waits while a message is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.app.documents import LONG_TEXT_BYTES

if TYPE_CHECKING:
    from hearth.app.chats.records import AttachmentPart
    from hearth.ui.composer import Composer

    Draft = tuple[str, list[tuple[AttachmentPart, bytes]]]

EDITING_HINT = "Editing: Enter makes a new branch, Esc leaves it"
NOT_EDITABLE = (
    "This message is too long for the editor, or has characters that it would change. "
    "Copy it, and send your version as a new message."
)


class Drafts:
    """Nothing that was typed is lost by changing chats or by editing.

    Attributes:
        editing: id of the message that is being edited, or None.
    """

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._by_chat: dict[str | None, Draft] = {}
        self._before_edit: Draft = ("", [])
        self.editing: str | None = None

    def switch(self, before: str | None, after: str | None) -> None:
        """Keep what is written for one chat, show what was written for another."""
        self.leave_editing()
        self._by_chat[before] = self._composer.draft()
        self._composer.set_draft(*self._by_chat.pop(after, ("", [])))

    def edit(self, message_id: str, text: str) -> str | None:
        """Put a message into the composer; a sentence when the editor cannot hold it."""
        self.leave_editing()
        self._before_edit = self._composer.draft()
        fits = len(text) <= LONG_TEXT_BYTES
        if fits:
            self._composer.set_draft(text, [])
        if not fits or self._composer.draft()[0] != text:
            self._composer.set_draft(*self._before_edit)
            return NOT_EDITABLE
        self.editing = message_id
        self._composer.set_meter(EDITING_HINT)
        self._composer.editor.setFocus()
        return None

    def leave_editing(self) -> None:
        """What the user was writing before comes back."""
        if self.editing is not None:
            self.editing = None
            self._composer.set_draft(*self._before_edit)
            self._composer.set_meter("")
