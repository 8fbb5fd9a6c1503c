// A conversation is a tree, because questions may be edited and answers generated again. `messages` has all messages in
// order of creation. A message's `parent` is the index of the message before it in the conversation (absent: the
// previous message of the list; -1: none). `head` is the index of the last message shown (absent: the last message of
// the list).
const parentOf = (chat, i) => chat.messages[i].parent ?? i - 1;
const headOf = chat => chat.head ?? chat.messages.length - 1;

// The messages shown, in order.
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

// Adds a message after the last message shown.
export const add = (chat, message) => insert(chat, message, headOf(chat));

// Adds a new version of a message and shows it.
export const addVersion = (chat, old, message) => insert(chat, message, parentOf(chat, chat.messages.indexOf(old)));

// All versions of a message, oldest first.
export function versions(chat, message) {
  const parent = parentOf(chat, chat.messages.indexOf(message));
  return chat.messages.filter((m, i) => parentOf(chat, i) === parent && m.role === message.role);
}

// Shows a version of a message, and the newest messages after it.
export function choose(chat, message) {
  let at = chat.messages.indexOf(message), child;
  while ((child = chat.messages.findLastIndex((_, i) => parentOf(chat, i) === at)) >= 0) at = child;
  chat.head = at;
}

// Whether an imported conversation has the form of a tree.
export function isTree({messages, head}) {
  const within = (x, low, high) => Number.isInteger(x) && x >= low && x < high;
  return within(head ?? messages.length - 1, messages.length ? 0 : -1, messages.length) &&
         messages.every((m, i) => within(m.parent ?? i - 1, -1, i));
}
