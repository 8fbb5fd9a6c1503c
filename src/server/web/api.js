// The part of the server's API that the pages use. If the server requires a key, a dialog asks the user for the key.
import {ask} from '/dialogs.js';
import {settings} from '/settings_store.js';

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function headers(more, body) {
  const given = body instanceof FormData ? {...more} : {'Content-Type': 'application/json', ...more};
  if (settings.values.key) given.Authorization = 'Bearer ' + settings.values.key;
  return given;
}

async function errorOf(response) {
  let message = `The server answered with status ${response.status}.`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* not JSON */ }
  if (response.status === 401) message += ' (Enter the key in Settings.)';
  return new ServerError(message, response.status);
}

let asking = null;     // the dialog that is open; all calls that wait for the key share it
let declined = false;  // the user has cancelled the dialog: only calls by the user open it again

async function newKey(used) {
  if (settings.values.key !== used) return true;
  const question = used ? 'The server refuses this API key. Enter another key.' : 'This server requires an API key.';
  asking ??= ask(question, {input: '', type: 'password', ok: 'Use this key'}).finally(() => asking = null);
  const key = await asking;
  declined = !key;
  if (key) settings.set('key', key);
  return !declined;
}

async function call(path, options = {}, byUser = false) {
  for (;;) {
    const used = settings.values.key;
    const response = await fetch(path, {...options, headers: headers(options.headers, options.body)});
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401 || (declined && !byUser) || !await newKey(used)) throw error;
  }
}

export const models = async () => (await (await call('/v1/models')).json()).data;

// What a recording says.
export async function transcribe(wav) {
  const body = new FormData();
  body.append('file', wav, 'speech.wav');
  return (await (await call('/v1/audio/transcriptions', {method: 'POST', body}, true)).json()).text;
}
export const metrics = async () => (await call('/metrics', {cache: 'no-store'})).text();

// The number of tokens of the messages in a request's body.
export async function count(body, signal) {
  const {model, messages, tools, chat_template_kwargs, reasoning_effort, continue_final_message, add_generation_prompt} = body;
  const sent = {model, messages, tools, chat_template_kwargs, reasoning_effort, continue_final_message, add_generation_prompt};
  return (await (await call('/tokenize', {method: 'POST', signal, body: JSON.stringify(sent)}, true)).json()).count;
}

// ---- answers ----

// Asks for a chat answer, which the server keeps under the name: if the connection is lost, again() gets the answer
// from its beginning.
export function begin(body, name, signal) {
  const sent = JSON.stringify({...body, stream: true, return_progress: true, stream_options: {include_usage: true}});
  return call('/v1/chat/completions', {method: 'POST', signal, body: sent, headers: {'X-Keep-Answer': name}}, true);
}
export const again = (name, signal) => call('/answers/' + encodeURIComponent(name), {signal, cache: 'no-store'});
// Ends an answer that nobody waits for.
export const end = name => call('/answers/' + encodeURIComponent(name), {method: 'DELETE', keepalive: true}).catch(() => {});  // it ends later

// Reads a stream. Calls onProgress({total, processed}) while the server reads the prompt, and onDelta({content,
// reasoning, calls}) when text arrives. Resolves to {finish, usage, timings}.
export async function read(response, onDelta, onProgress) {
  const result = {finish: null, usage: null, timings: null};
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return result;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ') || event === 'data: [DONE]') continue;
      const json = JSON.parse(event.slice(6));
      if (json.error) throw new ServerError(json.error.message);
      if (json.usage) result.usage = json.usage;
      if (json.timings) result.timings = json.timings;
      if (json.prompt_progress) onProgress(json.prompt_progress);
      const choice = json.choices && json.choices[0];
      if (!choice) continue;
      if (choice.finish_reason) result.finish = choice.finish_reason;
      const {content, reasoning_content: reasoning, tool_calls: calls} = choice.delta;
      if (!content && !reasoning && !calls) continue;
      onDelta({content: content || '', reasoning: reasoning || '', calls: calls || []});
    }
  }
}
