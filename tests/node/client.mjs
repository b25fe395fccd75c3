// Calls every RPC once, or once per thing to see, and prints what came back as JSON.
//
//     node client.mjs localhost:8600 ../../proto/rewriter/v1/rewriter.proto
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { protoPath as healthProto } from 'grpc-health-check';

const [target, rewriterProto] = process.argv.slice(2);
const DEADLINE_MILLISECONDS = 30_000;

function connect(protoPath, service) {
  const definition = protoLoader.loadSync(protoPath, { keepCase: true, enums: String, defaults: true, oneofs: true });
  const path = service.split('.');
  const Client = path.reduce((scope, name) => scope[name], grpc.loadPackageDefinition(definition));
  // Loopback is not for a proxy.
  return new Client(target, grpc.credentials.createInsecure(), { 'grpc.enable_http_proxy': 0 });
}

const deadline = () => ({ deadline: Date.now() + DEADLINE_MILLISECONDS });

function call(client, method, request) {
  return new Promise((resolve) => {
    client[method](request, deadline(), (error, response) => resolve(error ? failure(error) : response));
  });
}

function stream(client, method, requests) {
  return new Promise((resolve) => {
    const answers = [];
    const duplex = client[method](deadline());
    duplex.on('data', (answer) => answers.push(answer));
    duplex.on('error', (error) => resolve(failure(error)));
    duplex.on('end', () => resolve(answers));
    requests.forEach((request) => duplex.write(request));
    duplex.end();
  });
}

function failure(error) {
  const [packed] = error.metadata.get('grpc-status-details-bin');
  return { code: grpc.status[error.code], details: error.details, status: packed?.toString('base64') };
}

// Offsets of the contract count code points, those of JavaScript's strings UTF-16 units.
const cut = (text, start, end) => [...text].slice(start, end).join('');

const withPieces = (response) => ({
  ...response,
  pieces: response.spans?.map((span) => cut(response.text, span.start, span.end)),
});

const rewriter = connect(rewriterProto, 'rewriter.v1.RewriterService');
const health = connect(healthProto, 'grpc.health.v1.Health');

const city = { history: ['西安前天刮大风'], utterance: '明天有雨吗', max_alternatives: 2, request_id: 'city' };
const emoji = { history: ['😀𠮷 好看'], utterance: '多少钱😀', request_id: 'emoji' };
const alone = { utterance: '今天几号', request_id: 'alone' };
const bad = { history: ['西安前天刮大风'], utterance: '', max_alternatives: -1, request_id: 'bad' };

const report = {
  health: await call(health, 'Check', { service: 'rewriter.v1.RewriterService' }),
  info: await call(rewriter, 'GetModelInfo', {}),
  city: withPieces(await call(rewriter, 'Rewrite', city)),
  emoji: withPieces(await call(rewriter, 'Rewrite', emoji)),
  alone: await call(rewriter, 'Rewrite', alone),
  bad: await call(rewriter, 'Rewrite', bad),
  batch: await call(rewriter, 'BatchRewrite', { requests: [city, bad, alone] }),
  stream: await stream(rewriter, 'StreamRewrite', [city, bad, emoji].map((request) => ({ request }))),
};
console.log(JSON.stringify(report, null, 2));
rewriter.close();
health.close();
