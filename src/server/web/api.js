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

// A session that writes down sound as it comes: PCM of 16 bits and 24,000 samples a second, in Base64. onDelta(id, text)
// adds to a part of what is said, onText(id, text) replaces the part, and onEnd(fault) is called once. A browser can send
// a key for a WebSocket only as a protocol.
export async function dictation({onDelta, onText, onEnd}) {
  await models();  // asks for the key if the server wants one
  const protocols = ['realtime', ...(settings.values.key ? ['openai-insecure-api-key.' + settings.values.key] : [])];
  const url = new URL('/v1/realtime?intent=transcription', location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  const socket = new WebSocket(url, protocols), kind = 'conversation.item.input_audio_transcription.';
  const send = event => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(event));
  let isOver = false;
  const end = fault => {
    if (isOver) return;
    isOver = true;
    socket.close();
    onEnd(fault);
  };
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onclose = () => reject(new ServerError('The server does not open a session for speech.'));
  });
  socket.onclose = event => end(event.reason || 'The connection to the server is lost.');
  socket.onmessage = ({data}) => {
    const event = JSON.parse(data);
    if (event.type === kind + 'delta') onDelta(event.item_id, event.delta);
    if (event.type === kind + 'completed') onText(event.item_id, event.transcript);
    if (event.type === 'input_audio_buffer.cleared') end();
    if (event.error && event.error.code !== 'input_audio_buffer_commit_empty') end(event.error.message);
  };
  return {
    append: audio => send({type: 'input_audio_buffer.append', audio}),
    finish: () => {  // the server clears its buffer after all parts are complete
      send({type: 'input_audio_buffer.commit'});
      send({type: 'input_audio_buffer.clear'});
    },
    close: () => {
      isOver = true;
      socket.close();
    },
  };
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
