"""Hooks of the site: decisions are listed, and links to files of the repository outside of docs/ work."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config):
    """Add the pages that are found: production.md, if it is there, and the decisions."""
    docs = Path(config["docs_dir"])
    if (docs / "production.md").exists():
        after = [next(iter(entry.values())) for entry in config["nav"]].index("from-other-tools.md")
        config["nav"].insert(after, {"Production": "production.md"})
    decisions = [{title(path): f"decisions/{path.name}"} for path in sorted((docs / "decisions").glob("*.md"))]
    config["nav"].append({"Decisions": decisions})
    return config


def title(path):
    """Return the first heading of a page."""
    heading = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
    return heading[1] if heading else path.stem


def on_page_markdown(markdown, page, config, files):
    """Lead links to files outside of docs/ to the repository; without `repo_url`, show the name of the file alone."""
    here = Path(page.file.abs_src_path).parent
    parts = FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda link: linked(link, here, config), part) for part in parts
    )


def linked(link, here, config):
    """Return a link of a page as the site has it."""
    bang, text, target = link.groups()
    path = target.partition("#")[0]
    if bang or not path or "://" in path:
        return link[0]
    found = (here / path).resolve()
    docs = Path(config["docs_dir"]).resolve()
    if found == docs / "decisions":
        return "[{}](decisions/{})".format(text, min(one.name for one in found.glob("*.md")))
    if found.is_relative_to(docs) or not found.exists():
        return link[0]  # a page, or a mistake that the strict build reports
    where = config["repo_url"]
    return "[{}]({}/blob/main/{})".format(text, where.rstrip("/"), found.relative_to(ROOT)) if where else text
