// Builds the body of a request from the conversation and the settings.
import {readTools, sentCalls} from '/calls.js';
import {withFiles} from '/files.js';
import {withImages} from '/images.js';
import {settings} from '/settings_store.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'repetition_penalty'];

// An answer with only an error. Later requests leave out this answer and its question, because many templates require
// alternating turns, and the question could be refused again.
export const isLost = message => message?.error && !message.content && !message.tool_calls;

function sentMessage({role, content, files, reasoning, tool_calls: calls, tool_call_id: id}) {
  const sent = {role, content: withImages(withFiles(content, files), files)};
  if (role === 'tool') sent.tool_call_id = id;
  if (calls) Object.assign(sent, {tool_calls: sentCalls(calls), ...(reasoning && {reasoning_content: reasoning})});
  return sent;
}

// Parses a JSON schema. Returns null if the text is empty. Throws Error with a message for people.
export function readSchema(text = '') {
  if (!text.trim()) return null;
  let schema;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    throw new Error(`The schema is not JSON: ${error.message}`);
  }
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    throw new Error('The schema must be a JSON object, such as {"type": "object", "properties": {...}}.');
  return schema;
}

// The template's variables for the choice in `thinking`: "" (the model's default), "on", "off" or an effort. What the
// model's template does not know is not sent.
function thinkingFields(thinking, {switch: name, efforts = []} = {}) {
  const isEffort = efforts.includes(thinking), switches = name && (isEffort || ['on', 'off'].includes(thinking));
  return {...(switches && {chat_template_kwargs: {[name]: thinking !== 'off'}}), ...(isEffort && {reasoning_effort: thinking})};
}

// The conversation in turns: lists of messages that begin with a question. Without questions that got no answer.
export function turnsOf(messages) {
  const kept = messages.filter((message, i) => !isLost(message) && !(message.role === 'user' && isLost(messages[i + 1])));
  const turns = [];
  for (const message of kept) {
    if (message.role === 'user' || !turns.length) turns.push([]);
    turns.at(-1).push(message);
  }
  return turns;
}

// turns: the turns that the model sees. begun: the answer to continue, or null. chat: the conversation, for its own
// system prompt and schema. model: its entry of /v1/models, or undefined.
export function requestBody(turns, begun, chat, model) {
  const v = settings.values, system = chat.system?.trim() ? chat.system : v.system;
  const body = {messages: [...(system.trim() ? [{role: 'system', content: system}] : []), ...turns.flat().map(sentMessage)]};
  if (begun) {
    body.messages.push({role: 'assistant', content: begun.content});
    Object.assign(body, {continue_final_message: true, add_generation_prompt: false});
  }
  const tools = readTools(v.tools), schema = readSchema(chat.schema);
  if (tools) body.tools = tools;
  if (schema) body.response_format = {type: 'json_schema', json_schema: {name: 'answer', schema}};
  for (const name of NUMBERS) if (v[name] !== '') body[name] = Number(v[name]);
  Object.assign(body, thinkingFields(v.thinking, model?.thinking));
  if (model) body.model = model.id;
  return body;
}
