// A conversation is a tree, for a question may be edited and an answer made anew. `messages` holds every message in the order in which
// they were made; `parent` of a message is the index of the message before it (absent: the one before it in the list; -1: none); `head`
// is the index of the last message that is shown (absent: the last one of the list).
const parentOf = (chat, i) => chat.messages[i].parent ?? i - 1;
const headOf = chat => chat.head ?? chat.messages.length - 1;

// The messages that are shown, the first one first.
export function path(chat) {
  const found = [];
  for (let i = headOf(chat); i >= 0; i = parentOf(chat, i)) found.push(chat.messages[i]);
  return found.reverse();
}

function insert(chat, message, parent) {
  const at = chat.messages.push(message) - 1;
  if (parent !== at - 1) message.parent = parent;
  chat.head = at;
  return message;
}

// Adds a message behind the last one that is shown.
export const add = (chat, message) => insert(chat, message, headOf(chat));

// Adds another version of a message, and shows it.
export const addVersion = (chat, old, message) => insert(chat, message, parentOf(chat, chat.messages.indexOf(old)));

// Every version of a message, the oldest first.
export function versions(chat, message) {
  const parent = parentOf(chat, chat.messages.indexOf(message));
  return chat.messages.filter((m, i) => parentOf(chat, i) === parent && m.role === message.role);
}

// Shows a version, with the newest messages behind it.
export function choose(chat, message) {
  let at = chat.messages.indexOf(message), child;
  while ((child = chat.messages.findLastIndex((_, i) => parentOf(chat, i) === at)) >= 0) at = child;
  chat.head = at;
}

// Does a file's conversation have the shape of a tree?
export function isTree({messages, head}) {
  const within = (x, low, high) => Number.isInteger(x) && x >= low && x < high;
  return within(head ?? messages.length - 1, messages.length ? 0 : -1, messages.length) &&
         messages.every((m, i) => within(m.parent ?? i - 1, -1, i));
}
