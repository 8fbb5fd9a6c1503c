// Builds the body of a request from the conversation and the settings.
import {readTools, sentCalls} from '/calls.js';
import {withFiles} from '/files.js';
import {settings} from '/store.js';

const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'repetition_penalty'];

// An answer with only an error. Later requests leave out this answer and its question, because many templates require
// alternating turns, and the question could be refused again.
export const isLost = message => message?.error && !message.content && !message.tool_calls;

function sentMessage({role, content, files, reasoning, tool_calls: calls, tool_call_id: id}) {
  const sent = {role, content: withFiles(content, files)};
  if (role === 'tool') sent.tool_call_id = id;
  if (calls) Object.assign(sent, {tool_calls: sentCalls(calls), ...(reasoning && {reasoning_content: reasoning})});
  return sent;
}

// messages: the messages before the answer. begun: the answer to continue, or null.
export function requestBody(messages, begun, model) {
  const v = settings.values;
  const kept = messages.filter((message, i) => !isLost(message) && !(message.role === 'user' && isLost(messages[i + 1])));
  const body = {messages: [...(v.system.trim() ? [{role: 'system', content: v.system}] : []), ...kept.map(sentMessage)]};
  if (begun) {
    body.messages.push({role: 'assistant', content: begun.content});
    Object.assign(body, {continue_final_message: true, add_generation_prompt: false});
  }
  const tools = readTools(v.tools);
  if (tools) body.tools = tools;
  for (const name of NUMBERS) if (v[name] !== '') body[name] = Number(v[name]);
  if (model) body.model = model;
  return body;
}
