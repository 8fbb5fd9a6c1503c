// Creates an element with attributes and children. Attributes named on... are listeners.
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Copies a text. Rejects if the browser refuses. navigator.clipboard is missing on pages of other machines without TLS.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make('textarea', {class: 'sr', 'aria-hidden': 'true'}), focused = document.activeElement;
  area.value = text;
  (document.querySelector('dialog[open]') ?? document.body).append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  focused?.focus();
  if (!copied) throw new Error('the browser refuses');
}

const SIGN_MS = 1500;

// A button that copies text(), and says for a moment whether it did. say(text): tells screen readers.
export function copyButton(text, say = () => {}, attributes = {}) {
  const copy = make('button', {type: 'button', ...attributes, onclick: async () => {
    const copied = await copyText(text()).then(() => true, () => false);
    copy.textContent = copied ? '✓ Copied' : 'Not copied';
    copy.classList.toggle('done', copied);
    say(copied ? 'Copied.' : 'The browser does not let this page copy. Select the text, and copy it with Ctrl+C.', !copied);
    clearTimeout(copy.timer);
    copy.timer = setTimeout(() => {
      copy.textContent = 'Copy';
      copy.classList.remove('done');
    }, SIGN_MS);
  }}, 'Copy');
  return copy;
}
