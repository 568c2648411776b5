"""Words that follow every prompt of a trained policy, as files of its model folder.

A policy that was trained to read certain words between prompt and answer is used with them: evaluations read them from
`use.json` (`models.policies.use`), and servers that use the folder as a chat model from the tokenizer's chat template.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from models.policies.use import PolicyUse, write_use
from models.text.chat_template import TEMPLATE, plain_template
from models.text.encoding import Codec


def write_after_prompt(folder: Path, codec: Codec, words: str, ids: Sequence[int]) -> None:
    """Write into a model folder that `words` follow every prompt.

    Args:
        folder: model folder with the tokenizer's files.
        codec: the policy's tokenizer.
        words: text between prompt and completion.
        ids: the same as tokens, without an end token.
    """
    text = codec.text([ids])[0]
    write_use(folder, PolicyUse(after_prompt=tuple(ids), text=text if words.strip() == text.strip() else words))
    spaced = words if words[:1].isspace() else f" {words}"
    template = folder / TEMPLATE
    if codec.chat and template.is_file():
        template_text = (
            template.read_text(encoding="utf-8")
            + f"{{% if add_generation_prompt %}}{{{{ {json.dumps(spaced)} }}}}{{% endif %}}"
        )
    else:
        template_text = plain_template(codec.tokenizer, spaced)
    template.write_text(template_text, encoding="utf-8")
