// The server's API as the pages use it.
import {settings} from '/store.js';

export class ServerError extends Error {}

function headers() {
  const given = {'Content-Type': 'application/json'};
  if (settings.values.key) given.Authorization = 'Bearer ' + settings.values.key;
  return given;
}

async function checked(response) {
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* not JSON */ }
  if (response.status === 401) message += ' (Settings has a field for it)';
  throw new ServerError(message);
}

export async function models() {
  const response = await checked(await fetch('/v1/models', {headers: headers()}));
  return (await response.json()).data;
}

export async function metrics() {
  return (await checked(await fetch('/metrics', {headers: headers(), cache: 'no-store'}))).text();
}

// Streams a chat answer: onDelta({content, reasoning, calls}) as text comes, onProgress({total, processed}) while the
// prompt is read; resolves to {finish, usage, timings}.
export async function stream(body, signal, onDelta, onProgress) {
  const response = await checked(await fetch('/v1/chat/completions', {
    method: 'POST', headers: headers(), signal,
    body: JSON.stringify({...body, stream: true, return_progress: true, stream_options: {include_usage: true}}),
  }));
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
