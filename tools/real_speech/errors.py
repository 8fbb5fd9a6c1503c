"""Word errors: substitutions, deletions and insertions for each word of the reference."""
import re


def words(text):
    return re.sub(r"[^a-z' ]", " ", text.lower().replace("-", " ")).split()


def errors(reference, hypothesis):
    """The fewest edits between two lists of words."""
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]
