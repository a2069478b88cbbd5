"""Pages of the repository as pages of the site.

Pages are written for the repository's own view: links are relative paths, also to files outside `docs`. Here each link gets the
address of its target on the site. A target outside `docs` becomes a page under `tree/`. A link without a target ends the build.
"""

import html
import json
import os
import posixpath
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})")
CODE = re.compile(r"(`+)(?:(?!`).|(?<!`)`(?!`))*?\1")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ITEM = re.compile(r"^(\s*)(?:[-*]|\d+\.)\s+")
FIRST = "README.md"
# A picture of what `doorbell demo` prints.
DEMO = "docs/pictures/demo.svg"

places = {}  # Path in the repository -> path on the site, of pages outside docs.
problems = []


def slug(text, separator="-"):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"<[^>]*>", "", html.unescape(text)).strip().lower()
    return "".join("-" if c == " " else c for c in text if c.isalnum() or c in " -_")


def is_prose(text):
    """Each line, and whether it is outside of code."""
    fence = None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and fence is None:
            fence = mark[2]
            yield line, False
        elif mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = None
            yield line, False
        else:
            yield line, fence is None


def outside_code(line, change):
    """`line` with `change` applied to what is not `code`."""
    out, at = [], 0
    for code in CODE.finditer(line):
        out += [change(line[at : code.start()]), code[0]]
        at = code.end()
    return "".join(out) + change(line[at:])


def links(text):
    found = []
    for line, prose in is_prose(text):
        if prose and not line.startswith("    "):
            # Code inside of a link's text is no reason to skip the link.
            found += [m[2] for m in LINK.finditer(line)]
    return [target for target in found if "://" not in target and not target.startswith(("mailto:", "#"))]


def resolved(source, target):
    """The path in the repository that a link of the page `source` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target.split("#")[0]))


def place_of(path):
    """Where the site has it; `None` where only a page under tree/ can show it."""
    if path == FIRST:
        return "index.md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path[len("docs/") :]
    return places.get(path)


def listing(path):
    names = subprocess.run(["git", "ls-files", "--", path + "/"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = sorted({name[len(path) + 1 :].split("/")[0] for name in names if name})
    readme = ROOT / path / "README.md"
    head = readme.read_text() if readme.is_file() else f"# {path}\n"
    return head + "\n\n## Files\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"


def source_page(path):
    """The page of a file or folder outside of docs."""
    full = ROOT / path
    if full.is_dir():
        return listing(path)
    text = full.read_text(errors="replace")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n<pre><code>{html.escape(text)}</code></pre>\n"


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    places.clear()
    problems.clear()
    return config


def first_page():
    """The README, with the text of the demo's picture in place of the picture, which a phone would shrink."""
    text = (ROOT / FIRST).read_text()
    lines = re.findall(r"<text[^>]*>(.*?)</text>", (ROOT / DEMO).read_text())
    shown = re.sub(rf"!\[[^\]]*\]\({DEMO}\)", lambda _: "```text\n" + html.unescape("\n".join(lines)) + "\n```", text)
    if shown == text:
        raise PluginError(f"{FIRST} does not show {DEMO}")
    return shown


def on_files(files, config):
    """Adds the first page, and pages for what is outside of docs and has a link to it."""
    files.append(File.generated(config, "index.md", content=first_page()))
    waiting = [(FIRST, (ROOT / FIRST).read_text())]
    waiting += [(f"docs/{f.src_uri}", f.content_string) for f in files.documentation_pages() if f.src_uri != "index.md"]
    # Of pages outside docs, those that the navigation names.
    named = re.findall(r"tree/([\w./-]+)\.md", Path(config.config_file_path).read_text())
    targets = [(name + ".md") for name in named]
    while waiting or targets:
        if not targets:
            source, text = waiting.pop()
            targets = [resolved(source, target) for target in links(text)]
            continue
        path = targets.pop()
        if place_of(path) or not (ROOT / path).exists():
            continue
        # A folder's page has its README, and a README is its folder's page.
        folder = path if (ROOT / path).is_dir() else posixpath.dirname(path) if path.endswith("/README.md") else None
        if folder:
            place = f"tree/{folder}/index.md"
            places[folder] = places[f"{folder}/README.md"] = place
            path = folder
        else:
            place = f"tree/{path}" if path.endswith(".md") else f"tree/{path}.md"
            places[path] = place
        text = source_page(path)
        files.append(File.generated(config, place, content=text))
        if folder or path.endswith(".md"):
            waiting.append((f"{folder}/README.md" if folder else path, text))
    return files


def origin(page):
    """Where the repository has this page."""
    uri = page.file.src_uri
    if uri == "index.md":
        return FIRST
    if uri.startswith("tree/"):
        return next(path for path, place in reversed(list(places.items())) if place == uri)
    return f"docs/{uri}"


def on_page_markdown(markdown, page, config, files):
    source = origin(page)
    if source in places and not source.endswith(".md") and (ROOT / source).is_file():
        return markdown

    def address(match):
        target = match[2]
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path = resolved(source, target)
        place = place_of(path)
        if not place:
            problems.append(f"{source}: {target}")
            return match[0]
        anchor = target[target.index("#") :] if "#" in target else ""
        return f"{match[1]}{posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor}{match[3]}"

    out, before, depth = [], "", []
    for line, prose in is_prose(markdown):
        if prose:
            if not line.startswith("    ") or ITEM.match(line) or depth:
                line = LINK.sub(address, line)
            # GitHub takes a list right below a paragraph, and two spaces for a list in a list. Python-Markdown needs a blank line and four.
            item = ITEM.match(line)
            if item:
                width = len(item[1])
                while depth and width < depth[-1]:
                    depth.pop()
                if not depth or width > depth[-1]:
                    if before.strip() and not ITEM.match(before) and not depth:
                        out.append("")
                    depth.append(width)
                line = "    " * (len(depth) - 1) + line.lstrip()
            elif line.strip() and not line.startswith(" "):
                if not before.strip():
                    depth = []
            elif line.strip() and depth:
                line = "    " * len(depth) + line.lstrip()
        out.append(line)
        before = line
    return "\n".join(out)


def on_env(env, config, files):
    if problems:
        raise PluginError("links that lead to no file:\n" + "\n".join(sorted(set(problems))))


class Texts(HTMLParser):
    """The text of a section, and apart from it the text of its blocks of code. Comments are in neither."""

    def __init__(self, section):
        super().__init__()
        self.depth, self.prose, self.code = 0, [], []
        self.feed(section)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.depth += tag == "pre"
        self.handle_data(" " if tag in BLOCKS else "")

    def handle_endtag(self, tag):
        self.depth -= tag == "pre"
        self.handle_data(" " if tag in BLOCKS else "")

    def handle_data(self, data):
        (self.code if self.depth else self.prose).append(data)


# Tags that end a word.
BLOCKS = {"p", "li", "td", "th", "tr", "br", "pre", "ul", "ol", "table", "h2", "h3", "h4"}
# What the search knows of each section: its page, its heading, its text, and its code, which no result shows.
sections = []


def plain(parts):
    text = "".join(parts).replace("->", "\u2192").replace("`", "")
    return re.sub(r"\s+", " ", text).strip()[:4000]


def on_page_content(content, page, config, files):
    parts = re.split(r'<h([1-6]) id="([^"]*)">(.*?)</h\1>', content)
    is_source = page.file.src_uri.startswith("tree/") and page.file.src_uri.count("/") > 1
    for at in range(1, len(parts) - 3, 4):
        texts = Texts(parts[at + 3])
        head = plain(Texts(parts[at + 2]).prose)
        url = page.url + ("" if parts[at] == "1" else "#" + parts[at + 1])
        one = {"page": plain([page.title]), "head": head, "url": url, "text": plain(texts.prose), "code": plain(texts.code), "source": is_source}
        sections.append(one)
    return content


def on_post_build(config):
    # A script, because a browser lets no page that comes from a file read another file.
    path = Path(config.site_dir) / "search.index.js"
    path.write_text("const SECTIONS = " + json.dumps(sections, ensure_ascii=False) + ";\n")
    size = sum(f.stat().st_size for f in Path(config.site_dir).rglob("*") if f.is_file())
    print(f"{len(list(Path(config.site_dir).rglob('*.html')))} pages, {size / 1e6:.1f} MB, in {os.path.relpath(config.site_dir)}")
    sections.clear()
