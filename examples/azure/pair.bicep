// Not compiled by Bicep or deployed yet. A pair for syphon: two namespaces, the backlog queues, an identity for the worker, and its roles.
// az deployment group create -g messaging -f pair.bicep -p primaryName=contoso secondaryName=contoso-dr
// The names of the backlog queues begin with the primary's name: see `syphon provision`, which checks them, too.

@description('The namespace that applications use.')
param primaryName string

@description('The namespace that holds the backlog, in another region.')
param secondaryName string

param primaryLocation string = resourceGroup().location
param secondaryLocation string

@description('The queues of the primary.')
param queues string[] = [
  'orders'
]

@minValue(1)
@maxValue(100)
param backlogQueueCount int = 10

@allowed([
  'Standard'
  'Premium'
])
param sku string = 'Standard'

var sender = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39')
var receiver = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0')
var owner = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '090c5cfd-751d-490a-894a-3ce6f1109419')

resource primary 'Microsoft.ServiceBus/namespaces@2021-11-01' = {
  name: primaryName
  location: primaryLocation
  sku: {
    name: sku
    tier: sku
  }
  properties: {
    disableLocalAuth: true
  }
}

resource secondary 'Microsoft.ServiceBus/namespaces@2021-11-01' = {
  name: secondaryName
  location: secondaryLocation
  sku: {
    name: sku
    tier: sku
  }
  properties: {
    disableLocalAuth: true
  }
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2021-11-01' = [for name in queues: {
  parent: primary
  name: name
}]

// It receives the probes of `syphon canary`.
resource canary 'Microsoft.ServiceBus/namespaces/queues@2021-11-01' = {
  parent: primary
  name: 'syphon-canary'
}

// The documented backlog queues. In Resource Manager a slash in the name of a queue is a tilde.
resource backlog 'Microsoft.ServiceBus/namespaces/queues@2021-11-01' = [for index in range(0, backlogQueueCount): {
  parent: secondary
  name: '${primaryName}~x-servicebus-transfer~${index}'
  properties: {
    maxSizeInMegabytes: 5120
    maxDeliveryCount: 2147483647
    defaultMessageTimeToLive: 'P10675199DT2H48M5.4775807S'
    autoDeleteOnIdle: 'P10675199DT2H48M5.4775807S'
    lockDuration: 'PT60S'
    deadLetteringOnMessageExpiration: true
    enableBatchedOperations: true
  }
}]

resource worker 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'syphon-${primaryName}'
  location: primaryLocation
}

// The worker reads the backlog, counts its messages, and sends to the primary. Data Owner on the secondary is for counts,
// ETA and `syphon provision`; without them Data Receiver suffices (`syphon run --no-provision`).
resource readsBacklog 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: secondary
  name: guid(secondary.id, worker.id, owner)
  properties: {
    roleDefinitionId: owner
    principalId: worker.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource sendsToPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: primary
  name: guid(primary.id, worker.id, sender)
  properties: {
    roleDefinitionId: sender
    principalId: worker.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

// The canary of the worker peeks for its probes, in this queue alone.
resource receivesProbes 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: canary
  name: guid(canary.id, worker.id, receiver)
  properties: {
    roleDefinitionId: receiver
    principalId: worker.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

output clientId string = worker.properties.clientId
output primaryHost string = '${primary.name}.servicebus.windows.net'
output secondaryHost string = '${secondary.name}.servicebus.windows.net'
