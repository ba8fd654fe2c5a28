"""An explanation as a page of HTML: the texts, with what was chosen marked in them."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from torch import Tensor

from ksubset.explain.explainer import Explanation

_FREQUENT = 20  # words in the list of those chosen most often
_STYLE = """
:root { color-scheme: light dark; --mark: 255 140 0; }
body { font: 17px/1.6 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
mark { background: rgb(var(--mark) / var(--p)); color: inherit; border-radius: .2em;
       padding: 0 .1em; }
mark.chosen { text-decoration: underline; text-decoration-thickness: .14em; font-weight: 600; }
section { border-top: 1px solid #8886; padding: .8rem 0; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.note { opacity: .75; font-size: .88em; }
"""


def write_page(
    explanation: Explanation,
    inputs: Sequence[str | Sequence[str]],
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] | None = None,
    outcomes: Sequence[str] | None = None,
    title: str = "Explanation",
    most: int = 100,
) -> Path:
    """Write a page that shows every text with its words marked: the stronger the colour, the more
    probable it is that a word is chosen; underlined are the words of the most likely choice. The
    page is one file that needs nothing else.

    Args:
        explanation: of a batch of inputs of n items.
        inputs: their items in words, one for every input: a text, whose items are its words (what
            is between spaces), or a list of names. At most n each; further items are padding.
        path: of the page; a file that is there is replaced.
        labels: the names of the classes, where predictions are scores of classes, (batch, classes).
        outcomes: what is explained, in words, for every input: what a classifier says of it.
        title: of the page.
        most: how many inputs to show, the first ones.

    Returns:
        The path.

    Examples:
        >>> from ksubset.explain import KSubsetExplainer, MaskedInput, write_page
        >>> explainer = KSubsetExplainer(torch.nn.Identity(), MaskedInput(torch.nn.Linear(4, 2)), 2)
        >>> found = explainer.explain(torch.tensor([[0.0, 4.0, 0.0, 3.0]]))
        >>> page = write_page(found, ["a warm bright beer"], "explanation.html")
        >>> "warm" in page.read_text(encoding="utf-8")
        True
        >>> page.unlink()
    """
    texts = _items(explanation, inputs)
    if outcomes is not None and len(outcomes) != len(texts):
        raise ValueError(
            f"outcomes must be one for each of the {len(texts)} inputs, got {len(outcomes)}"
        )
    predicted = _predicted(explanation.prediction, labels)
    shown = min(len(texts), most)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{_summary(explanation, texts, predicted, outcomes)}</p>",
        _frequent(explanation, texts),
    ]
    if shown < len(texts):
        parts.append(f'<p class="note">The first {shown} of {len(texts)} inputs.</p>')
    for i in range(shown):
        told = outcomes[i] if outcomes is not None else None
        guess = predicted[i] if predicted is not None else None
        parts.append(_section(explanation, i, texts[i], guess, told))
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    return _write(Path(path), head + "\n".join(parts) + "</html>\n")


def _items(explanation: Explanation, inputs: Sequence[str | Sequence[str]]) -> list[list[str]]:
    if isinstance(inputs, str):
        raise TypeError("inputs must be a list with one text for every input, got a single text")
    batch, n = explanation.chosen.shape
    if len(inputs) != batch:
        raise ValueError(f"inputs must be {batch}, as in the explanation, got {len(inputs)}")
    texts = [text.split() if isinstance(text, str) else list(text) for text in inputs]
    for i, text in enumerate(texts):
        if len(text) > n:
            raise ValueError(
                f"inputs must have at most {n} items, as in the explanation, "
                f"got {len(text)} in input {i}"
            )
    return texts


def _predicted(prediction: Tensor, labels: Sequence[str] | None) -> list[str] | None:
    if labels is None:
        return None
    if prediction.dim() != 2 or prediction.shape[1] != len(labels):
        raise ValueError(
            f"labels must name the classes of predictions (batch, classes), got {len(labels)} "
            f"for predictions {tuple(prediction.shape)}"
        )
    return [labels[j] for j in prediction.argmax(-1).tolist()]


def _chosen(explanation: Explanation, i: int, text: Sequence[str]) -> list[str]:
    """The chosen items of an input by name, the most probable first, without padding."""
    chosen = explanation.chosen[i].nonzero().flatten().tolist()
    marginals = explanation.marginals[i].tolist()
    chosen.sort(key=lambda j: -marginals[j])
    return [text[j] for j in chosen if j < len(text)]


def _summary(
    explanation: Explanation,
    texts: list[list[str]],
    predicted: list[str] | None,
    outcomes: Sequence[str] | None,
) -> str:
    counts = explanation.chosen.sum(-1)
    if not len(counts):
        return "There are no inputs."
    least, largest = int(counts.min()), int(counts.max())
    number = str(least) if least == largest else f"{least} to {largest}"
    words = sum(map(len, texts)) / len(texts)
    found = (
        f"{number} items were chosen in each of {len(texts)} inputs, which have {words:.0f} items "
        "on average."
    )
    if predicted is not None and outcomes is not None:
        agree = sum(a == b for a, b in zip(predicted, outcomes, strict=True))
        share = f"{agree / len(texts):.0%}"
        found += f" From these alone, {share} of the outcomes are predicted correctly."
    return found + (
        " The stronger the colour of an item, the more probable it is that it is chosen; the most "
        "likely choice is underlined."
    )


def _frequent(explanation: Explanation, texts: list[list[str]]) -> str:
    found = Counter(
        word.lower() for i, text in enumerate(texts) for word in _chosen(explanation, i, text)
    )
    words = ", ".join(f"{escape(word)} ({count})" for word, count in found.most_common(_FREQUENT))
    return f"<p><b>Chosen most often:</b> {words}</p>" if words else ""


def _section(
    explanation: Explanation, i: int, text: Sequence[str], guess: str | None, told: str | None
) -> str:
    marginals, chosen = explanation.marginals[i].tolist(), explanation.chosen[i].tolist()
    words = []
    for word, p, is_chosen in zip(text, marginals, chosen, strict=False):
        name = ' class="chosen"' if is_chosen else ""
        words.append(
            f'<mark{name} style="--p:{0.75 * p:.3f}" title="chosen with probability {p:.2f}">'
            f"{escape(str(word))}</mark>"
        )
    notes = []
    if told is not None:
        notes.append(f"Outcome: <b>{escape(str(told))}</b>")
    if guess is not None:
        notes.append(f"From the chosen items alone: <b>{escape(str(guess))}</b>")
    notes.append(f"Probability of this choice: {float(explanation.probability[i]):.2g}")
    return f'<section><p>{" ".join(words)}</p><p class="note">{" · ".join(notes)}</p></section>'


def _write(path: Path, text: str) -> Path:
    """As a whole, or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
